"""The report: an index, or what the doctor found about a table, on one page of HTML.

`gather` reads and measures an index, and `page` fills the template ``index.html``; `doctor_page`
fills ``table.html``. The charts need the extra ``plot``.
"""

from .gathering import Missing, Report, gather
from .page import check_page, doctor_page, page, save_page

__all__ = ["Missing", "Report", "check_page", "doctor_page", "gather", "page", "save_page"]

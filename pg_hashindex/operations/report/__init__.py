"""The report: an index on one page of HTML, with its recall, times and codes.

`gather` reads and measures, `page` fills the template ``page.html``; the charts need the extra
``plot``.
"""

from .gathering import Missing, Report, gather
from .page import check_page, page, save_page

__all__ = ["Missing", "Report", "check_page", "gather", "page", "save_page"]

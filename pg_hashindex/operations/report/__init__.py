"""An index on one page: what it is, how well it finds, how its codes are spread."""

from .gathering import Missing, Report, gather
from .page import page
from .saving import check_page, save_page

__all__ = ["Missing", "Report", "check_page", "gather", "page", "save_page"]

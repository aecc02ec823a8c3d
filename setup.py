"""Write the readme of the package: pyproject.toml has everything else.

Pages of published packages have no files beside them, so links of README.md that lead to files are
made to lead to the repository. A plug-in does the same for another build backend, which cannot
install this layout of folders as editable.
"""

import re
import tomllib
from pathlib import Path

from setuptools import setup

_HERE = Path(__file__).parent
_LINK = re.compile(r"(!?)(\[[^]]*\])\((?!\w+:|#)([^)\s]+)\)")


def readme() -> str:
    """Return README.md with absolute links."""
    project = tomllib.loads((_HERE / "pyproject.toml").read_text())["project"]
    repository = project["urls"]["Repository"]

    def absolute(link: re.Match[str]) -> str:
        image, text, path = link.groups()
        return f"{image}{text}({repository}/{'raw' if image else 'blob'}/main/{path})"

    return _LINK.sub(absolute, (_HERE / "README.md").read_text())


setup(long_description=readme(), long_description_content_type="text/markdown")

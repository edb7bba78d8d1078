"""README.md for the pages of npm and PyPI, where links into the source tree lead nowhere.

Makes every relative link and picture a URL of the release's tag. Changes nothing else.
"""

import re

from release import Release

# Markdown `](docs/x.md)`, and HTML `src="docs/x.png"`, `srcset=`, `href=`; not URLs or `#places`.
RELATIVE = re.compile(r'(\]\(|\b(?:src|srcset|href)=")(?![a-z]+:|#)([^)"\s]+)')
PICTURES = (".png", ".svg")


def text(release: Release) -> str:
    """The README with absolute links."""

    def absolute(match: re.Match) -> str:
        opening, path = match.groups()
        view = "raw" if path.endswith(PICTURES) else "blob"
        return f"{opening}{release.repository}/{view}/v{release.version}/{path}"

    return RELATIVE.sub(absolute, release.text("README.md"))

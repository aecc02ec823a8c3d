"""The health of the index."""

from fastapi import APIRouter, Response
from sqlalchemy import text

from .database import Session
from .models import INDEX
from .schemas import Finding, Health

__all__ = ["router"]

router = APIRouter(tags=["health"])

_FINDINGS = text(
    "SELECT check_name, status, detail, advice FROM hashindex.health(:index) WHERE status <> 'ok'"
)


@router.get("/health")
async def health(session: Session, response: Response) -> Health:
    """Return the health of the index, with advice."""
    findings = [
        Finding(check=row.check_name, status=row.status, detail=row.detail, advice=row.advice)
        for row in await session.execute(_FINDINGS, {"index": INDEX})
    ]
    worst = "ok"
    if findings:
        broken = any(finding.status == "broken" for finding in findings)
        worst = "broken" if broken else "warning"
    if worst == "broken":
        response.status_code = 503
    return Health(status=worst, findings=findings)

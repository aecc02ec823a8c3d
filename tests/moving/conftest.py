"""Moving a database, or an index to other tables."""

import pytest

pytest.register_assert_rewrite("fixtures.house")

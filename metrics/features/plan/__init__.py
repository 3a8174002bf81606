"""A plan: the smallest measured set-up, charts, and exports of a limit."""

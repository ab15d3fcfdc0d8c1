"""From recorded requests and steps to figures: what pictures, tables and verdicts are made of."""

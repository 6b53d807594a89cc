"""Places ranks on machines: one module per engine."""

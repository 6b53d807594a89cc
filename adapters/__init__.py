"""The worker side: one folder per framework, run in that framework's own environment. Python >= 3.7, numpy only."""

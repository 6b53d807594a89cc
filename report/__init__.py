"""Turns records into report.md, report.html, results.csv, results.json and charts."""

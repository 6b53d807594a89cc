"""What is wrong with published figures, and with our own: rules over tables and over comparisons."""

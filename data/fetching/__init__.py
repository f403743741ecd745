"""Downloads: resumed, verified, and under their final name only when whole."""

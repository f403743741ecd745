"""Programs that measure the figures in the pages: speed of inference, server and loader, plans, losses."""

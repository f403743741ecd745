"""Programs that make the figures of the pages: speed of inference, of the server and of the loader, plans, losses."""

"""The console: shows events on a terminal or as plain lines."""

"""Every setting declared once: name, type, default, doc, bounds."""

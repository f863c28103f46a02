"""Regular expressions from clients, matched in time linear in the text. No pattern backtracks."""

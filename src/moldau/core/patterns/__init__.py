"""Regular expressions that clients send: matched in time linear in the text, whatever they say."""

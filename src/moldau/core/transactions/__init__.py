"""The transaction coordinator's decisions: what every transactional id may do next."""

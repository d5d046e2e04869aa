"""What a person looks at after a fit: the sites, figures, a page, a folder."""

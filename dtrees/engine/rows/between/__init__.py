"""What shards of rows have to do with one another: whose blocks of rows meet, and by whom parcels go."""

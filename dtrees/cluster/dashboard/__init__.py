"""What fits have told of themselves, and the page that shows it in Dask's dashboard."""

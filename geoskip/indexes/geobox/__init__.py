"""GeoBox: up to k closed boxes a file, for longitude and latitude columns or for geometries."""

"""GeoBox: up to k closed boxes per file, for longitude and latitude columns or for geometries."""

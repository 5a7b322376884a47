-- Reads a value.
select version, value, stamp from mortise_names where key = ?

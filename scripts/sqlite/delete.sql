-- Removes the value of a version. The parameters are those of put.
delete from mortise_names where key = ?1 and version = ?5 returning 0, 0

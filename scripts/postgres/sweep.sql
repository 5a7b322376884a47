-- Removes the rows of names that have been free for a while.
delete from mortise_names
where value is null and stamp < floor(extract(epoch from clock_timestamp()) * 1000) - $1::bigint

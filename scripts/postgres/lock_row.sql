-- Reads a value and keeps other clients from changing it until the transaction ends. It does not wait for a guard.
select version, value, stamp, floor(extract(epoch from clock_timestamp()) * 1000)::bigint
from mortise_names where key = $1 and value is not null for no key update

-- Lists values in the order of their keys: those after $3, from the prefix $1 to its last key $2.
select key, version, value, stamp, floor(extract(epoch from clock_timestamp()) * 1000)::bigint
from mortise_names where key >= $1 and key <= $2 and key > $3 and value is not null order by key limit $4

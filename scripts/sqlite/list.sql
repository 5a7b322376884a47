-- Lists values in the order of their keys: those after ?3, from the prefix ?1 to its last key ?2. It writes nothing.
-- The store's time goes on from the last write to the monotonic clock ?4.
select n.key, n.version, n.value, n.stamp, max(s.last, s.base + ?4)
from mortise_names n, mortise_store s where n.key >= ?1 and n.key <= ?2 and n.key > ?3 order by n.key limit ?5

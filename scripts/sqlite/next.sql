-- Takes versions, and returns the last of them and the store's time. The monotonic clock begins anew with the machine:
-- the store's time then goes on from the last write.
update mortise_store
set version = version + ?1, base = max(base, last - ?2), last = max(last, base + ?2)
where id = 1 returning version, last

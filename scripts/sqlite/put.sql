-- Writes a value where there is none, if the version is 0, or in place of a version.
insert into mortise_names (key, version, value, stamp)
select ?1, ?2, ?3, ?4 where ?5 = 0 or exists (select 1 from mortise_names where key = ?1 and version = ?5)
on conflict do update set version = excluded.version, value = excluded.value, stamp = excluded.stamp where version = ?5
returning version, stamp

-- What mortise keeps in a file of SQLite: a row for each name that is held or waited for, and one row for the store.
--
-- Version is the last version that was given out. The store's time is base and the machine's monotonic clock, in ms;
-- last is the time of the last write, and at first that of the day. The first request of a client carries this out.
create table if not exists mortise_names (
  key text primary key,
  version integer not null,
  value blob not null,
  stamp integer not null
) without rowid;
create table if not exists mortise_store (
  id integer primary key check (id = 1),
  version integer not null,
  base integer not null,
  last integer not null
);
insert into mortise_store (id, version, base, last) values (1, 0, 0, cast(unixepoch('subsec') * 1000 as integer))
on conflict do nothing;

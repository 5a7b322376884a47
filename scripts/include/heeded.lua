--! fragment heeded served unheeded prefix
--
-- What a message begins with that Redisson's clients wait for: unheeded, which mortise's do not heed, where entries were
-- told or it is Redisson's turn; otherwise +, at which the clients of entries ask a little later. Where nothing
-- can be told all are to ask, as at a release of Redisson's.
prefix = served and unheeded or at and '+' or ''

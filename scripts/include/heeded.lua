--! fragment heeded served unheeded prefix
--
-- The prefix of a message to Redisson's clients. If entries were told, or Redisson has a turn, it is unheeded:
-- mortise's clients ignore the message. Otherwise it is +, at which clients with entries ask a little later. Without
-- the server's clock no entry can be told: the prefix is empty, and all clients ask, as after a release by Redisson.
prefix = served and unheeded or at and '+' or ''

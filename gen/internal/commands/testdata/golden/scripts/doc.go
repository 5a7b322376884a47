package scripts

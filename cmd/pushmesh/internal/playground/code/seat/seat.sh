# Who holds the seat, and who waits for it.
pushmesh claim list play/seat \
  --router 127.0.0.1:7401

# Run a command as soon as it is our turn. The hold is
# renewed while it runs, and given up when it ends; where the
# hold is lost, the command is stopped.
pushmesh claim run play/seat --router 127.0.0.1:7401 -- \
  sh -c 'echo has the seat; sleep 2; echo gave it up'

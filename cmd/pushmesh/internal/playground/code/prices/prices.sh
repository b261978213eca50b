# How prices are ranked: the policy of their namespace.
pushmesh namespace get play/prices \
  --router 127.0.0.1:7401

# A backend publishes one, with the features it is ranked by.
pushmesh pub play/prices '{"symbol": "MINE"}' \
  --feature tech=1 --feature move=9 \
  --router 127.0.0.1:7401

# The best five of each second, for somebody who likes
# technology.
pushmesh sub play/prices --rank-top-k 5 \
  --profile tech=1,energy=0.1 --edge 127.0.0.1:7400

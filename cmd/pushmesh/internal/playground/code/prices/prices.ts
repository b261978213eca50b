// The best five prices of each second, for somebody who
// likes technology.
import { connect } from "@pushmesh/client";

interface Price {
  symbol: string;
  price: number;
}

const client = connect({
  url: "ws://127.0.0.1:7400",
  // What the rank policy of play/prices multiplies with the
  // features of each message.
  profile: { tech: 1, energy: 0.1 },
});

client.subscribe(
  "play/prices",
  (m) => {
    const { symbol, price } = m.json<Price>();
    console.log(m.score.toFixed(2), symbol, price / 100);
  },
  { rankTopK: 5 },
);

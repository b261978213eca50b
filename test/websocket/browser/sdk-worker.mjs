// The client that all tabs use.
import { connect } from "./client/index.js";
import { serveTabs } from "./client/shared/index.js";

const query = new URLSearchParams(location.search);
serveTabs(connect({ url: query.get("edge"), clientId: query.get("client"), heartbeatMs: 2000 }));

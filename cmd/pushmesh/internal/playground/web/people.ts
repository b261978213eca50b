// Who the clients of this tab are. Two tabs have different people, and a tab that is loaded again has the same.

const pairs = [
  ["Ann", "Bob"], ["Cleo", "Dan"], ["Eva", "Finn"], ["Gina", "Hugo"], ["Ida", "Jon"], ["Kim", "Leo"], ["Mia", "Nils"], ["Olga", "Paul"],
] as const;

/** What this browser adds to names: another browser has an Ann, too. */
function browser(): string {
  const fresh = () => Array.from(crypto.getRandomValues(new Uint8Array(4)), (b) => (b % 36).toString(36)).join("");
  try {
    const known = localStorage.getItem("browser") ?? fresh();
    localStorage.setItem("browser", known);
    return known;
  } catch {
    return fresh(); // the browser keeps nothing
  }
}

export interface Person {
  name: string;
  clientId: string;
}

/** The first pair that no other tab has. It is this tab's for as long as it is open. */
export async function people(): Promise<[Person, Person]> {
  const own = browser();
  for (const names of pairs) {
    const free = await new Promise<boolean>((tell) => {
      void navigator.locks.request(`people-${names[0]}`, { ifAvailable: true }, (lock) => {
        tell(lock !== null);
        return lock ? new Promise(() => undefined) : undefined;
      });
    });
    if (free) return named(names, own);
  }
  return named(pairs[0], browser() + Math.floor(Math.random() * 1e6).toString(36));
}

const named = (names: readonly [string, string], own: string): [Person, Person] => [
  { name: names[0], clientId: `${names[0].toLowerCase()}-${own}` },
  { name: names[1], clientId: `${names[1].toLowerCase()}-${own}` },
];

/** The name of a user as the mesh has it: client:ann-x1y2 is Ann, and a backend says nothing. */
export function nameOf(user: string): string {
  if (user === "") return "a backend";
  const id = user.replace(/^client:/, "").replace(/-[a-z0-9]{4,}$/, "");
  return id.charAt(0).toUpperCase() + id.slice(1);
}

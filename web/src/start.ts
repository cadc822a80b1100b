// Nothing is open yet: what there is to open, or digits to try.

import { api } from "./api";
import { fill, h, toast } from "./dom";
import type { Screen } from "./main";
import { setState } from "./store";
import type { Found } from "./types";

const KINDS: Record<Found["kind"], string> = { project: "Project", model: "Model", pictures: "Pictures", table: "Table" };

export function startScreen(root: HTMLElement): Screen {
  const list = h("div", { class: "found" });
  const open = async (work: () => Promise<Parameters<typeof setState>[0]>): Promise<void> => {
    try {
      setState(await work());
    } catch (error) {
      toast((error as Error).message, true);
    }
  };
  fill(
    root,
    h(
      "div",
      { class: "page start" },
      h("h1", {}, "Teach a classifier by showing it examples"),
      h("p", { class: "lead" }, "Five examples make a class. You see at once what changed, and can take it back."),
      h(
        "div",
        { class: "start-cards" },
        h(
          "section",
          { class: "panel" },
          h("h2", {}, "Try it"),
          h("p", {}, "Handwritten digits 0 to 4 are known; 5 to 9 are waiting to be taught."),
          h("button", { class: "primary", onclick: () => void open(api.digits) }, "Try with digits"),
        ),
        h("section", { class: "panel" }, h("h2", {}, "Open"), list),
      ),
    ),
  );
  api.found().then(
    ({ root: folder, found }) =>
      fill(
        list,
        h("p", { class: "soft small" }, `In ${folder}`),
        found.length
          ? h(
              "ul",
              {},
              ...found.map((each) =>
                h(
                  "li",
                  {},
                  h(
                    "button",
                    { class: "found-item", onclick: () => void open(() => api.open(each.path)) },
                    h("span", { class: "kind soft small" }, KINDS[each.kind]),
                    h("strong", {}, each.name),
                    h("span", { class: "soft small" }, each.detail),
                  ),
                ),
              ),
            )
          : h("p", {}, "There is nothing here to open. Start the studio with a folder of pictures, one folder a class: ", h("code", {}, "gptree studio photos")),
      ),
    (error) => fill(list, h("p", {}, (error as Error).message)),
  );
  return { title: "Start", stop: () => undefined };
}

// Looks at the views of changes: light and dark, wide and narrow.

import { everyLook, order, runSteps } from "./session.mjs";

const VIEWS = {
  settings: "/servers/weather?tab=settings", model: "/tools?q=storm&model=1", explain: "/explain?tool=weather__delete_report",
  paste: "/add?tab=paste", popular: "/add?tab=popular", program: "/add?tab=popular&server=files", command: "/add?tab=command",
  keys: "/keys", preview: `/add?url=${encodeURIComponent(await order("second-url"))}`, more: "/sessions",
};

async function looks(_, browser) {
  await everyLook(browser, VIEWS, async (page, name) => {
    if (name === "preview") {
      await page.getByRole("button", { name: "Preview" }).click();
      await page.locator("#preview [data-count]").waitFor();
    }
    const more = page.locator("#more summary");
    if (name === "more" && await more.isVisible()) await more.click();
  });
}

await runSteps([looks]);

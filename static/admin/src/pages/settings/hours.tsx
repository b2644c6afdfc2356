import { useState } from "preact/hooks";
import { Refusal } from "../../api/problem";
import type { AppResponse } from "../../api/types";
import { useBegin } from "../../lib/begin";
import { calendarFrom, calendarWords, DAYS } from "../../lib/hours";
import { zoneFault } from "../../lib/time-zone";
import { useHere, useMay } from "../../shell/context";
import { Card } from "../../ui/card";
import { Draft, Notice } from "../../ui/draft";
import { useEdit } from "../../ui/edit";
import { Ask, Field, Form } from "../../ui/form";
import { ChooseApp } from "../../shell/choose-app";
import { loadCalendar, setCalendar, type CalendarSettings, type OffPeak } from "./load";

export function Hours() {
  const { app, apps } = useHere();
  return app ? <HoursOf key={app.id} app={app} /> : <ChooseApp apps={apps} what="Each app has its own quiet hours." />;
}

function HoursOf({ app }: { app: AppResponse }) {
  const calendar = useBegin(app.id, (stop) => loadCalendar(app.id, stop));
  const [saved, setSaved] = useState(false);
  return (
    <Card title="Quiet hours and send windows">
      <p class="fine">
        Transactional messages, such as one-time codes, are sent at any time. Other messages wait, if their time to live
        is long enough.
      </p>
      <div onInput={() => setSaved(false)}>
        <Draft of={calendar} what="the quiet hours">
          {(known) => <Edit app={app} known={known} again={calendar.again} setSaved={setSaved} />}
        </Draft>
      </div>
      <Notice>{saved && "Saved."}</Notice>
    </Card>
  );
}

/** Zones of this browser, as suggestions. */
const ZONES = Intl.supportedValuesOf?.("timeZone") ?? [];

function Edit({
  app,
  known,
  again,
  setSaved,
}: {
  app: AppResponse;
  known: CalendarSettings;
  again: () => void;
  setSaved: (saved: boolean) => void;
}) {
  const operator = useMay("operator", app.id);
  const [isQuiet, setQuiet] = useState(known.quiet_hours != null);
  const [windows, setWindows] = useState<OffPeak[]>(known.off_peak ?? []);
  const [proposed, propose] = useState<CalendarSettings>();
  const reload = () => {
    propose(undefined);
    again();
  };
  const edit = useEdit({ begun: known, load: (stop) => loadCalendar(app.id, stop), written: (it) => it, reload });
  return (
    <>
      <Form
        button="Review the change…"
        id="change-hours"
        isOff={!operator.may}
        work={async (written) => {
          setSaved(false);
          const fault = zoneFault(written.text("timezone"));
          if (fault) throw new Refusal(400, { detail: `The time zone ${fault}.` });
          propose(calendarFrom(written, windows.length));
        }}
      >
        <Field label="Time zone" hint="For the windows below, and for recipients without a known time zone.">
          {(tie) => (
            <input name="timezone" list="zones" required defaultValue={known.timezone} autocomplete="off" {...tie} />
          )}
        </Field>
        <datalist id="zones">
          {ZONES.map((zone) => (
            <option key={zone} value={zone} />
          ))}
        </datalist>
        <fieldset class="choices">
          <legend>Quiet hours, in each recipient’s time zone</legend>
          <label>
            <input
              type="checkbox"
              name="quiet"
              checked={isQuiet}
              onChange={(event) => setQuiet(event.currentTarget.checked)}
            />{" "}
            <span>Promotional and engagement messages wait</span>
          </label>
          {isQuiet && (
            <span class="row">
              <label>
                from <input type="time" name="quiet_from" required defaultValue={known.quiet_hours?.from ?? "22:00"} />
              </label>
              <label>
                until <input type="time" name="quiet_to" required defaultValue={known.quiet_hours?.to ?? "08:00"} />
              </label>
            </span>
          )}
        </fieldset>
        <fieldset class="choices column">
          <legend>Engagement messages only within</legend>
          {windows.length === 0 && <p class="fine">No windows: at any time.</p>}
          {windows.map((window, n) => (
            <div class="window" key={n}>
              <span class="row">
                <label>
                  from <input type="time" name={`from_${n}`} required defaultValue={window.from} />
                </label>
                <label>
                  until <input type="time" name={`to_${n}`} required defaultValue={window.to} />
                </label>
              </span>
              <span class="row tight">
                {DAYS.map(([day, word]) => (
                  <label key={day}>
                    <input
                      type="checkbox"
                      name={`days_${n}`}
                      value={day}
                      defaultChecked={window.days?.includes(day) ?? true}
                    />{" "}
                    {word}
                  </label>
                ))}
              </span>
            </div>
          ))}
          <span class="row">
            <button
              type="button"
              disabled={windows.length >= 50}
              onClick={() => setWindows([...windows, { from: "10:00", to: "16:00" }])}
            >
              Add a window
            </button>
            {windows.length > 0 && (
              <button type="button" onClick={() => setWindows(windows.slice(0, -1))}>
                Remove the last window
              </button>
            )}
          </span>
        </fieldset>
      </Form>
      {!operator.may && <p class="fine">Your role does not allow changing quiet hours. {operator.why}</p>}
      {proposed && (
        <Ask
          title="Change the quiet hours?"
          button="Save"
          says={`${calendarWords(proposed)} The change takes effect within a minute, also for waiting deliveries.`}
          work={async () => {
            await edit.save((condition) => setCalendar(app.id, proposed, condition));
            setSaved(true);
            reload();
          }}
          onClose={() => propose(undefined)}
        />
      )}
    </>
  );
}

// Where boards are drawn. The server lays them out by round trips, so boards of one switch may be
// on one point; here they are moved apart just so far that each can be seen. The same input gives
// the same picture.

const ROUNDS = 80;
const MOST_STRETCH = 1.8;

/** Points in 0..1 to pixels of a box, with one scale, or nearly so, for both directions. */
function fit(points, width, height, margin) {
  const xs = points.map((point) => point.x);
  const ys = points.map((point) => point.y);
  const left = Math.min(...xs);
  const top = Math.min(...ys);
  const spanX = Math.max(...xs) - left;
  const spanY = Math.max(...ys) - top;
  const inX = Math.max(width - 2 * margin.x, 1);
  const inY = Math.max(height - 2 * margin.y, 1);
  let scaleX = spanX > 1e-6 ? inX / spanX : 0;
  let scaleY = spanY > 1e-6 ? inY / spanY : 0;
  if (scaleX && scaleY) {
    scaleX = Math.min(scaleX, scaleY * MOST_STRETCH);
    scaleY = Math.min(scaleY, scaleX * MOST_STRETCH);
  }
  return points.map((point) => ({
    x: width / 2 + (point.x - left - spanX / 2) * scaleX,
    y: height / 2 + (point.y - top - spanY / 2) * scaleY,
  }));
}

/** points: [{x, y}] in 0..1. size: {width, height} of one board in pixels, its label included. */
export function place(points, width, height, size) {
  const margin = { x: size.width / 2 + 8, y: size.height / 2 + 8 };
  const spots = fit(points, width, height, margin);
  for (let round = 0; round < ROUNDS; round++) {
    let moved = false;
    const cells = new Map();
    spots.forEach((spot, i) => {
      const key = `${Math.floor(spot.x / size.width)},${Math.floor(spot.y / size.height)}`;
      if (!cells.has(key)) cells.set(key, []);
      cells.get(key).push(i);
    });
    for (const [key, members] of cells) {
      const [column, row] = key.split(",").map(Number);
      for (let dx = -1; dx <= 1; dx++) {
        for (let dy = -1; dy <= 1; dy++) {
          for (const j of cells.get(`${column + dx},${row + dy}`) ?? []) {
            for (const i of members) {
              if (i < j) moved = separate(spots[i], spots[j], i, size) || moved;
            }
          }
        }
      }
    }
    for (const spot of spots) {
      spot.x = Math.min(Math.max(spot.x, margin.x), width - margin.x);
      spot.y = Math.min(Math.max(spot.y, margin.y), height - margin.y);
    }
    if (!moved) break;
  }
  return spots;
}

function separate(one, other, i, size) {
  const dx = other.x - one.x;
  const dy = other.y - one.y;
  const overlapX = size.width - Math.abs(dx);
  const overlapY = size.height - Math.abs(dy);
  if (overlapX <= 0.5 || overlapY <= 0.5) return false;
  // Along the direction in which less is missing; two on one point part by their number.
  const alongX =
    overlapX / size.width === overlapY / size.height
      ? i % 2 === 0
      : overlapX / size.width < overlapY / size.height;
  const step = (alongX ? overlapX : overlapY) / 2 + 0.1;
  const axis = alongX ? "x" : "y";
  const sign = other[axis] >= one[axis] ? 1 : -1;
  one[axis] -= sign * step;
  other[axis] += sign * step;
  return true;
}

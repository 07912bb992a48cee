#include "report/page.h"

namespace lockstep {

const char* const kPage = R"PAGE(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Lockstep report</title>
<style>
:root{color-scheme:light dark;--ink:#1b1f24;--dim:#667;--line:#d8dce2;--back:#fff;--soft:#f4f6f8;--bad:#c62f2f;--good:#1d7f45;--mark:#b06a00;--ref:#2f6fc6;--cand:#d2691e}
@media (prefers-color-scheme:dark){:root{--ink:#e7eaee;--dim:#99a;--line:#353b44;--back:#15181c;--soft:#1e2228;--bad:#ff7a70;--good:#5bd08c;--mark:#e6a23c;--ref:#77aaff;--cand:#ffb070}}
*{box-sizing:border-box}body{margin:0 auto;max-width:1180px;padding:20px;font:15px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--back)}
h1{font-size:26px;margin:0 0 4px}h2{font-size:17px;margin:28px 0 8px;border-bottom:1px solid var(--line);padding-bottom:4px}
.bad{color:var(--bad)}.good{color:var(--good)}.dim{color:var(--dim)}code,td,.mono{font-family:ui-monospace,monospace;font-size:13px}
.card{background:var(--soft);border:1px solid var(--line);border-radius:8px;padding:12px 14px;margin:8px 0}.card b{color:var(--mark)}
dl{display:grid;grid-template-columns:110px 1fr;gap:2px 12px;margin:6px 0}dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}
canvas{max-width:100%}.plot{width:100%;height:280px;border:1px solid var(--line);border-radius:8px;background:var(--soft);cursor:crosshair;display:block}
.row{display:flex;gap:16px;flex-wrap:wrap}.row figure{margin:0;flex:1 1 250px;min-width:220px}.row canvas{width:100%;image-rendering:pixelated;border:1px solid var(--line);border-radius:6px}
figcaption{font-size:13px;color:var(--dim);margin-top:3px}
.filters{display:flex;gap:8px;flex-wrap:wrap;margin:8px 0}input,select,button{font:inherit;font-size:14px;padding:4px 8px;border:1px solid var(--line);border-radius:6px;background:var(--back);color:var(--ink)}
.scroll{height:480px;overflow:auto;border:1px solid var(--line);border-radius:8px}table{border-collapse:collapse;width:100%}th{position:sticky;top:0;background:var(--soft);text-align:left;font-size:13px;padding:6px 8px;cursor:pointer;z-index:1;white-space:nowrap}
td{padding:0 8px;height:24px;border-top:1px solid var(--line);white-space:nowrap}tr.first td{background:color-mix(in srgb,var(--bad) 18%,transparent)}tr.mismatch td:nth-child(1),tr.incomparable td:nth-child(1){color:var(--bad)}
#tip{position:fixed;pointer-events:none;background:var(--ink);color:var(--back);padding:4px 8px;border-radius:6px;font-size:12px;display:none;max-width:480px;z-index:5}
</style></head><body>
<h1 id="verdict"></h1><div class="dim" id="sub"></div>
<div id="divergence"></div>
<h2>Error over the stages</h2>
<div class="filters"><select id="step"></select><button id="reset">whole run</button><span class="dim">wheel zooms, drag moves, click finds the row</span></div>
<canvas class="plot" id="plot"></canvas><div class="dim" id="growth"></div>
<div id="tensor"></div><div id="pictures"></div><div id="ledger"></div>
<h2>Tensors</h2>
<div class="filters"><input id="search" placeholder="part of a name" size="30"><select id="state"><option value="">every state</option></select><select id="role"><option value="">every role</option></select><span class="dim" id="count"></span></div>
<div class="scroll" id="scroll"><table><thead><tr id="head"></tr></thead><tbody id="body"></tbody></table></div>
<div id="notes"></div><div id="tip"></div>
<script>
"use strict";
const D=/*DATA*/null;
const $=id=>document.getElementById(id),num=v=>typeof v==="number"?v:v==="Infinity"?Infinity:v==="-Infinity"?-Infinity:NaN;
const make=(tag,text,cls)=>{const e=document.createElement(tag);if(text!==undefined)e.textContent=text;if(cls)e.className=cls;return e};
const short=v=>{const x=num(v);return !isFinite(x)?String(v):x===0?"0":x.toExponential(2)};
const S=D.summary,F=S.first_divergence;
const css=name=>getComputedStyle(document.documentElement).getPropertyValue(name).trim();
$("verdict").textContent=S.verdict==="match"?"Match":S.verdict==="mismatch"?"Mismatch":"Nothing compared";
$("verdict").className=S.verdict==="match"?"good":"bad";
const badCount=D.rows.filter(r=>r[5]==="mismatch"||r[5]==="incomparable").length;
$("sub").textContent=`${S.compared} tensors compared, ${badCount} differ · reference ${S.reference} · candidate ${S.candidate} · noise floor from ${S.noise.source}`;
if(F){const box=$("divergence");box.append(make("h2","First divergence"));const card=make("div",undefined,"card"),dl=make("dl");
const add=(k,v)=>{if(v===undefined||v===null||v==="")return;dl.append(make("dt",k),make("dd",v,"mono"))};
add("tensor",F.name+(F.step===null?"":` · step ${F.step}`)+(F.hit?` · hit ${F.hit}`:"")+` · ${F.role} · ${Object.values(F.tags).join(" ")}`);add("kind",F.kind+(F.parent?` (${F.parent})`:""));
add("error",`${short(F.error.relative)} relative, ${short(F.in_floors)} × the noise floor ${short(F.noise_floor)}; largest ${short(F.error.max_abs)}; cosine ${F.error.cosine}`);
add("region",F.region);add("good inputs",F.good_inputs.join(", "));add("where",F.where.candidate||F.where.reference);add("hint",F.hint);card.append(dl);box.append(card);
box.append(make("h2","Cause"));if(!S.causes.length)box.append(make("div","No family explains both sides of this pair: no guess is made.","card"));
for(const c of S.causes){const e=make("div",undefined,"card");e.append(make("b",c.cause));e.append(make("span",`  leaves ${short(c.residual)} unexplained`,"dim"));const l=make("dl");
for(const [k,v] of [["",c.explanation],["fix",c.fix],["look at",c.look_at]])l.append(make("dt",k),make("dd",v));e.append(l);box.append(e)}}
// --- the curve ---
const steps=[...new Set(D.rows.map(r=>r[2]))].sort((a,b)=>a-b),stepBox=$("step");
stepBox.append(new Option("all steps","all"));for(const s of steps)stepBox.append(new Option(s<0?"outside the loop":`step ${s}`,s));
let view=[0,1],chosen=[];
const pickRows=()=>{chosen=[];D.rows.forEach((r,i)=>{if((stepBox.value==="all"||String(r[2])===stepBox.value)&&r[5]!=="unread")chosen.push(i)});view=[0,Math.max(1,chosen.length)]};
function draw(){const c=$("plot"),ratio=devicePixelRatio||1,w=c.clientWidth,h=c.clientHeight;c.width=w*ratio;c.height=h*ratio;const g=c.getContext("2d");g.scale(ratio,ratio);
const lo=-9,hi=1,L=52,B=22,X=i=>L+(i-view[0])/(view[1]-view[0])*(w-L-8),Y=v=>{const e=Math.log10(Math.max(1e-9,Math.min(10,isFinite(v)?v:10)));return 6+(hi-e)/(hi-lo)*(h-B-6)};
g.font="11px system-ui";g.strokeStyle=css("--line");g.fillStyle=css("--dim");for(let e=lo;e<=hi;e+=2){g.beginPath();g.moveTo(L,Y(10**e));g.lineTo(w-8,Y(10**e));g.stroke();g.fillText("1e"+e,8,Y(10**e)+4)}
const a=Math.max(0,Math.floor(view[0])),b=Math.min(chosen.length,Math.ceil(view[1])+1);
g.strokeStyle=css("--dim");g.setLineDash([3,3]);g.beginPath();for(let k=a;k<b;k++){const y=Y(D.factor*num(D.rows[chosen[k]][7]));k===a?g.moveTo(X(k),y):g.lineTo(X(k),y)}g.stroke();g.setLineDash([]);
const size=Math.max(1.5,Math.min(5,(w-L)/(view[1]-view[0])/3));
for(let k=a;k<b;k++){const r=D.rows[chosen[k]],bad=r[5]==="mismatch"||r[5]==="incomparable";g.fillStyle=bad?css("--bad"):css("--ref");g.beginPath();g.arc(X(k),Y(num(r[6])),size,0,7);g.fill();
if(chosen[k]===D.first){g.strokeStyle=css("--bad");g.beginPath();g.moveTo(X(k),6);g.lineTo(X(k),h-B);g.stroke();g.fillStyle=css("--bad");g.fillText("first divergence",Math.min(X(k)+4,w-90),16)}}
g.fillStyle=css("--dim");g.fillText(`stages ${a} to ${b} of ${chosen.length}, in execution order; dashed: the limit`,L,h-6)}
const at=e=>{const box=$("plot").getBoundingClientRect();return view[0]+(e.clientX-box.left-52)/(box.width-60)*(view[1]-view[0])};
const clampView=(a,b)=>{const n=Math.max(1,chosen.length),span=Math.min(n,Math.max(4,b-a));a=Math.max(0,Math.min(n-span,a));view=[a,a+span];draw()};
$("plot").addEventListener("wheel",e=>{e.preventDefault();const x=at(e),f=e.deltaY>0?1.25:.8;clampView(x-(x-view[0])*f,x+(view[1]-x)*f)},{passive:false});
let drag=null,moved=false;$("plot").addEventListener("pointerdown",e=>{drag=[at(e),e.clientX];moved=false});
addEventListener("pointermove",e=>{if(drag){if(Math.abs(e.clientX-drag[1])>3)moved=true;const d=drag[0]-at(e);clampView(view[0]+d,view[1]+d)}});
addEventListener("pointerup",e=>{if(drag&&!moved){const k=Math.round(at(e));if(chosen[k]!==undefined)jump(chosen[k])}drag=null});
$("plot").addEventListener("mousemove",e=>{const k=Math.round(at(e)),r=D.rows[chosen[k]],t=$("tip");if(!r){t.style.display="none";return}t.textContent=`${r[1]==="input"?"→ ":""}${r[0]}${r[2]<0?"":" step "+r[2]} ${r[4]}: ${short(r[6])}`;t.style.display="block";t.style.left=Math.min(innerWidth-300,e.clientX+12)+"px";t.style.top=e.clientY+14+"px"});
$("plot").addEventListener("mouseleave",()=>$("tip").style.display="none");
stepBox.onchange=()=>{pickRows();draw()};$("reset").onclick=()=>{pickRows();draw()};addEventListener("resize",draw);
$("growth").textContent=S.growth.words;
// --- the first bad tensor ---
const colour=(v,m)=>{if(!isFinite(v))return [255,0,255];const x=Math.max(-1,Math.min(1,m?v/m:0)),k=Math.round(255*(1-Math.abs(x)));return x<0?[k,k,255]:[255,k,k]};
function heat(map,limit,title){const f=make("figure"),c=make("canvas");c.width=map.width;c.height=map.height;const g=c.getContext("2d"),im=g.createImageData(map.width,map.height);
map.cells.forEach((v,i)=>{const [r,gr,b]=colour(num(v),limit);im.data.set([r,gr,b,255],4*i)});g.putImageData(im,0,0);c.style.maxHeight="320px";f.append(c,make("figcaption",`${title}: ${map.rows} × ${map.columns}, colours to ±${short(limit)}`));return f}
const largest=map=>map.cells.reduce((m,v)=>isFinite(num(v))?Math.max(m,Math.abs(num(v))):m,0);
function bars(h){const f=make("figure"),c=make("canvas");c.width=520;c.height=200;c.style.imageRendering="auto";f.style.maxWidth="560px";const g=c.getContext("2d"),top=Math.max(1,...h.reference.map(num),...h.candidate.map(num));
[["reference","--ref"],["candidate","--cand"]].forEach(([k,col],s)=>{g.fillStyle=css(col);h[k].forEach((v,i)=>{const y=num(v)?Math.max(1,Math.log10(1+num(v))/Math.log10(1+top)*180):0;g.fillRect(8+i*7.9+s*3.8,190-y,3.4,y)})});
f.append(c,make("figcaption",`values from ${short(h.low)} to ${short(h.high)}, counts on a log scale; reference and yours`));return f}
if(D.tensor){const box=$("tensor");box.append(make("h2","The first bad tensor"));const row=make("div",undefined,"row"),m=Math.max(largest(D.tensor.reference),1e-30);
row.append(heat(D.tensor.reference,m,"reference"),heat(D.tensor.candidate,m,"yours"));if(D.tensor.difference)row.append(heat(D.tensor.difference,Math.max(largest(D.tensor.difference),1e-30),"difference"));box.append(row);
const second=make("div",undefined,"row");second.append(bars(D.tensor.histogram));box.append(second)}
// --- pictures ---
function show(p,title,other){const f=make("figure"),c=make("canvas");c.width=p.width;c.height=p.height;const raw=atob(p.rgb),g=c.getContext("2d"),im=g.createImageData(p.width,p.height),second=other?atob(other.rgb):null;
for(let i=0,n=p.width*p.height;i<n;i++){for(let k=0;k<3;k++){const a=raw.charCodeAt(3*i+k);im.data[4*i+k]=second?Math.min(255,4*Math.abs(a-second.charCodeAt(3*i+k))):a}im.data[4*i+3]=255}g.putImageData(im,0,0);f.append(c,make("figcaption",title));return f}
if(D.pictures.length){const box=$("pictures");box.append(make("h2","Images"));for(const p of D.pictures){const row=make("div",undefined,"row");row.append(show(p.reference,"reference"),show(p.candidate,"yours"));
if(p.reference.rgb.length===p.candidate.rgb.length)row.append(show(p.candidate,"difference × 4",p.reference));box.append(make("div",`${p.name}: PSNR ${typeof p.psnr==="number"?p.psnr.toFixed(2):p.psnr} dB, SSIM ${typeof p.ssim==="number"?p.ssim.toFixed(5):p.ssim}`),row)}}
// --- ledger ---
if(D.ledger){const box=$("ledger");box.append(make("h2","Error ledger"));const t=make("table"),h=make("tr");for(const k of ["word","total","local","inherited","gain","stage"])h.append(make("th",k));t.append(h);
for(const e of D.ledger.entries.filter(e=>e.word!=="clean").slice(0,400)){const r=make("tr",undefined,e.word==="source"?"mismatch":"");for(const v of [e.word,short(e.total),short(e.local),short(e.inherited),short(e.gain),(e.role==="input"?"→ ":"")+e.name+(e.step===null?"":" step "+e.step)])r.append(make("td",v));t.append(r)}const s=make("div",undefined,"scroll");s.append(t);box.append(s)}
// --- the table: only the rows in view exist ---
const columns=[["state",5],["error",6],["floor",7],["largest",8],["cosine",9],["role",1],["step",2],["pass",4],["name",0],["shape",10],["dtype",11],["note",12]];
let order=D.rows.map((_,i)=>i),sortBy=null,down=true;
for(const [title,key] of columns){const th=make("th",title);th.onclick=()=>{down=sortBy===key?!down:true;sortBy=key;refresh()};$("head").append(th)}
for(const [id,key] of [["state",5],["role",1]])for(const v of [...new Set(D.rows.map(r=>r[key]))].sort())$(id).append(new Option(v,v));
const H=24;function refresh(){const q=$("search").value.toLowerCase(),st=$("state").value,ro=$("role").value;
order=[];D.rows.forEach((r,i)=>{if((!q||r[0].toLowerCase().includes(q))&&(!st||r[5]===st)&&(!ro||r[1]===ro))order.push(i)});
if(sortBy!==null)order.sort((a,b)=>{const x=D.rows[a][sortBy],y=D.rows[b][sortBy],p=num(x),s=num(y);const c=!isNaN(p)&&!isNaN(s)?p-s:String(x).localeCompare(String(y));return down?-c:c});
$("count").textContent=`${order.length} of ${D.rows.length}`;render()}
function render(){const box=$("scroll"),from=Math.max(0,Math.floor(box.scrollTop/H)-10),to=Math.min(order.length,from+Math.ceil(box.clientHeight/H)+20),body=$("body");body.textContent="";
const pad=n=>{const r=make("tr"),d=make("td");d.colSpan=columns.length;d.style.height=n*H+"px";d.style.border=0;r.append(d);return r};if(from)body.append(pad(from));
for(let k=from;k<to;k++){const r=D.rows[order[k]],tr=make("tr",undefined,r[5]+(order[k]===D.first?" first":""));for(const [,key] of columns)tr.append(make("td",key>=6&&key<=8?short(r[key]):key===9?(typeof r[9]==="number"?r[9].toFixed(6):r[9]):key===2&&r[2]<0?"":r[key]));body.append(tr)}
if(to<order.length)body.append(pad(order.length-to))}
function jump(i){let k=order.indexOf(i);if(k<0){$("search").value="";$("state").value="";$("role").value="";sortBy=null;refresh();k=order.indexOf(i)}$("scroll").scrollTop=Math.max(0,k*H-120);render();$("scroll").scrollIntoView({block:"nearest"})}
for(const id of ["search","state","role"])$(id).addEventListener("input",()=>{$("scroll").scrollTop=0;refresh()});$("scroll").addEventListener("scroll",render);
if(S.notes.length){const box=$("notes");box.append(make("h2","Notes"));for(const n of S.notes)box.append(make("div",n,"card"))}
pickRows();draw();refresh();
</script></body></html>
)PAGE";

}  // namespace lockstep

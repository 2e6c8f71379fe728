import{a,b,c,d}from"./chunk-I3OOZF5H.js";import"./chunk-URF2OKXG.js";import"./chunk-EDGCVU5Y.js";export{c as Blocked,b as KeyOf,a as LimitsPage,d as Taken};

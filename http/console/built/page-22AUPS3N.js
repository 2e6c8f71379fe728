import{a,b,c,d}from"./chunk-DJ6IOF74.js";import"./chunk-JQBVHWBA.js";import"./chunk-D3UI43KD.js";export{c as Blocked,b as KeyOf,a as LimitsPage,d as Taken};
